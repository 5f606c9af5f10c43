// Package durable makes files and directories survive a crash of the machine. Its errors are those of the file system, as they are:
// the caller knows what they mean to a person.
package durable

import (
	"bytes"
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

// CreateSparse is Create of a file with long stretches of zeros, such as moments that have not begun: they become holes where the file system has
// them, and take no space. What is read is the same.
func CreateSparse(name string, write func(io.Writer) error) error {
	return Create(name, func(w io.Writer) error {
		f, ok := w.(*os.File)
		if !ok {
			return write(w)
		}
		s := &sparse{f: f}
		if err := write(s); err != nil {
			return err
		}
		return s.end()
	})
}

// sparse writes blocks of a file, and passes over those that are zero.
type sparse struct {
	f    *os.File
	buf  []byte // less than a block
	size int64
}

// sparseBlock is a multiple of every file system's block.
const sparseBlock = 1 << 18

var zeros [sparseBlock]byte

func (s *sparse) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		take := min(len(p), sparseBlock-len(s.buf))
		s.buf, p = append(s.buf, p[:take]...), p[take:]
		if len(s.buf) == sparseBlock {
			if err := s.block(); err != nil {
				return n - len(p), err
			}
		}
	}
	return n, nil
}

func (s *sparse) block() error {
	var err error
	if bytes.Equal(s.buf, zeros[:len(s.buf)]) {
		_, err = s.f.Seek(int64(len(s.buf)), io.SeekCurrent)
	} else {
		_, err = s.f.Write(s.buf)
	}
	s.size += int64(len(s.buf))
	s.buf = s.buf[:0]
	return err
}

// end writes what is left; a hole at the end is part of the file by its length.
func (s *sparse) end() error {
	if err := s.block(); err != nil {
		return err
	}
	return s.f.Truncate(s.size)
}

// SyncDir returns when the names in a directory are on the device.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
