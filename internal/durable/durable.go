// Package durable makes files and directories survive a crash of the machine. Its errors are those of the file system, as they are:
// the caller knows what they mean to a person.
package durable

import (
	"cmp"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
)

// WriteNew writes a file that must not exist, mode 0644, and returns when its bytes are on the device. Its name is safe after
// SyncDir of its directory.
func WriteNew(name string, data []byte) error {
	return CreateAt(name, func(f *os.File) error { return WriteAll(f, data) })
}

// CreateAt is WriteNew of what write writes, in any order. An error of write is returned as it is, and leaves a part of the file behind.
func CreateAt(name string, write func(*os.File) error) error {
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

// WriteAll writes data to the beginning of a file, large data in parts on all cores: it is the copy into the system's memory that takes time.
func WriteAll(f *os.File, data []byte) error {
	const part = 16 << 20
	errs := make([]error, (len(data)+part-1)/part)
	running := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i := range errs {
		running <- struct{}{}
		all.Go(func() {
			_, errs[i] = f.WriteAt(data[i*part:min((i+1)*part, len(data))], int64(i*part))
			<-running
		})
	}
	all.Wait()
	return cmp.Or(errs...)
}

// ErrNoFile says that what has a file's name is a pipe, a socket or a device.
var ErrNoFile = errors.New("is no file, but a pipe, a socket or a device")

// Open opens a file or directory for reading. It never waits, as an open of a pipe does for somebody who writes: what is neither is ErrNoFile.
func Open(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) { // a socket
		return nil, &os.PathError{Op: "open", Path: name, Err: ErrNoFile}
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() && !st.IsDir() {
		err = &os.PathError{Op: "open", Path: name, Err: ErrNoFile}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// SyncDir returns when the names in a directory are on the device.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
