"""What a pod asks for: amounts by the managers' formulas, annotations, and which pods are left alone."""
