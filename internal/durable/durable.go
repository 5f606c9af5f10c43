// Package durable makes files and directories survive a crash of the machine. Its errors are those of the file system, as they are:
// the caller knows what they mean to a person.
package durable

import (
	"errors"
	"io"
	"os"
)

// WriteNew writes a file that must not exist, mode 0644, and returns when its bytes are on the device. Its name is safe after
// SyncDir of its directory.
func WriteNew(name string, data []byte) error {
	return Create(name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Create is WriteNew of what write writes. An error of write is returned as it is, and leaves a part of the file behind.
func Create(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // what a run leaves is for other programs too
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// SyncDir returns when the names in a directory are on the device.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
