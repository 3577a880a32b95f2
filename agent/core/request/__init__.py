"""What a pod asks for: amounts by the managers' formulas, annotations, and who is left alone."""
