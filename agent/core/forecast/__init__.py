"""What would be: another policy, pods packed anew, and the node that the scheduler would choose."""
