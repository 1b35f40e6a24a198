"""Programs to capture: each file makes a model, its input and its optimizer."""
