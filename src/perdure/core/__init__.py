"""The pure core: records, state machines, decisions. No input, no output, no clock."""
