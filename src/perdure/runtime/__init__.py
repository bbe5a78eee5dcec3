"""One task in one workspace: commit, recover, verify."""
