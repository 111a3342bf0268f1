"""The pipeline from encoded bytes to predictions, drivable without HTTP."""
