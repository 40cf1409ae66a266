package lab

import (
	"errors"
	"slices"
)

// removeAll removes everything that the record speaks of and then the record.
func (c *claim) removeAll() error {
	var errs []error
	for _, entry := range c.Namespaces {
		errs = append(errs, removeNamespace(entry, c.Token))
	}
	errs = append(errs, c.removeCgroup())
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, c.release())
	}
	return c.forget()
}

var _ = slices.Sort[[]string]
