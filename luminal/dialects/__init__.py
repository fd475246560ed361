"""The levels of the descent, each an xDSL dialect: hlo, primitive, kernel."""
