//go:build torture

package recorder

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
)

// SetBack rewrites the entries of begun calls in the files of a directory, so that each says that its call has not
// begun. A disk may hold that after a power failure, because the kernel writes pages back when it likes. SetBack
// returns how many entries it has rewritten.
func SetBack(dir string) (n int, err error) {
	files, err := filepath.Glob(filepath.Join(dir, filePrefix+"*"+fileSuffix))
	for _, path := range files {
		of, e := setBack(path)
		n, err = n+of, errors.Join(err, e)
	}
	return n, err
}

func setBack(path string) (n int, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	name, _ := nameOf(filepath.Base(path))
	head := wordsOf(data[:headerBytes])
	for i := range int(head[headEntries]) {
		at := headerBytes + i*entryBytes
		words := wordsOf(data[at : at+entryBytes])
		if s := stateOf(words, name); s != Begun && s != Left && s != Answered {
			continue
		}
		clear(words[wordBegun:])
		words[wordState] = sumOf(words, name, Prepared)
		for k, word := range words {
			binary.NativeEndian.PutUint64(data[at+k*8:], word)
		}
		n++
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	_, err = file.WriteAt(data, 0)
	return n, errors.Join(err, file.Close())
}
