"""The memory store: knowledge that outlives tasks (HALT-10).

Job: entries in files outside every workspace, found again by whoever works next. Invariants: an
entry is never edited, only superseded; an entry counts once it is on the medium; the index is made
from the entries and is never believed over them; progress of a task never goes in.
"""
