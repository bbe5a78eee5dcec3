"""The composition root: every query and command of perdure once, as plain data."""
