"""A KubeletConfiguration as each kubelet takes it, beside what numalign makes of the same file."""
