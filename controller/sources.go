package controller

import "embed"

// Sources are the controller's, tests among them: a finished run of a lab is filed with a digest of those that it was
// made by.
//
//go:embed *.go
var Sources embed.FS
