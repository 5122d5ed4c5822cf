package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Bounds of the input of commands. A body above MostBody could not be submitted, because NATS carries messages of at
// most 64 MiB.
const (
	MostConfig = 4 << 20  // bytes of a configuration
	MostBody   = 64 << 20 // bytes of a job's body
)

// ReadFile reads a file of at most most bytes. It fails if the file is longer, even if the file has no end, as
// /dev/zero.
func ReadFile(path string, most int64) (data []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err = ReadAll(file, most)
	_ = file.Close() // closing cannot fail: the file was only read
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// ReadAll reads all of r. Like ReadFile it fails if r is longer than most, in bytes.
func ReadAll(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, fmt.Errorf("more than %d bytes: is it the right file?", most)
	}
	return data, err
}

// ReadData returns the body that the flag --data names: for @FILE the content of FILE, for - or @- the whole of stdin,
// and otherwise the text of the flag.
func ReadData(data string, stdin io.Reader) ([]byte, error) {
	switch {
	case data == "-", data == "@-":
		body, err := ReadAll(stdin, MostBody)
		if err != nil {
			return nil, fmt.Errorf("--data: %w", err)
		}
		return body, nil
	case strings.HasPrefix(data, "@"):
		body, err := ReadFile(data[1:], MostBody)
		if err != nil {
			return nil, fmt.Errorf("--data: %w", err)
		}
		return body, nil
	}
	return []byte(data), nil
}
