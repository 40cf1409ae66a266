package experiment

// claims checks the claims of a file against its names.
func (c *checker) claims(f *File, axes []axis) {}
