"""``perdure selftest``: the crash matrix on the disk of whoever asks.

Job: run the production code in processes that are really killed, damage what they leave, open it
again and check it. Invariants: everything happens below one scratch directory, which is gone
afterwards; no simulated disk, clock or process table is involved. What it cannot show is a power
cut: after a kill the page cache is still there.
"""
