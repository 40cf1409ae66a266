package controller

import "embed"

// Sources are the controller's and those of its laws, tests among them: a finished run of a lab is filed with a digest of
// those that it was made by.
//
//go:embed *.go fabric/*.go forward/*.go poll/*.go
var Sources embed.FS
