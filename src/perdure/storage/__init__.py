"""The only code that touches files: disk, journal, projections, lease, drop box."""
