package config

import (
	"fmt"
	"strconv"
	"strings"
)

const sizeFix = "write 64KiB, 10GiB or a number of bytes"

// sizeUnit returns the bytes of a unit by its name, 0 for no such unit.
func sizeUnit(name string) int64 {
	switch name {
	case "", "B":
		return 1
	case "KiB":
		return 1 << 10
	case "MiB":
		return 1 << 20
	case "GiB":
		return 1 << 30
	case "TiB":
		return 1 << 40
	case "kB", "KB":
		return 1e3
	case "MB":
		return 1e6
	case "GB":
		return 1e9
	case "TB":
		return 1e12
	default:
		return 0
	}
}

// ParseSize reads a number of bytes: 512, 64KiB, 1.5MiB, 10GiB or, in thousands, KB, MB, GB.
func ParseSize(text string) (int64, error) {
	if strings.HasPrefix(text, "-") {
		return 0, refuse(sizeFix, "%s is negative", quote(text))
	}
	number, unit := leadingNumber(text)
	n, ok := parseDecimal(number)
	if !ok {
		return 0, refuse(sizeFix, "%s is not a size", quote(text))
	}
	length := sizeUnit(strings.TrimSpace(unit))
	if length == 0 {
		return 0, refuse("the units are B, KiB, MiB, GiB, TiB and KB, MB, GB, TB",
			"%s has the unknown unit %s", quote(text), quote(unit))
	}
	size, ok := n.times(length)
	if !ok {
		return 0, refuse(sizeFix, "%s is too large or not a whole number of bytes", quote(text))
	}
	return size, nil
}

// FormatSize writes a size so that ParseSize reads it back: in the largest binary unit that divides it.
func FormatSize(size int64) string {
	for _, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if length := sizeUnit(unit); size != 0 && size%length == 0 {
			return strconv.FormatInt(size/length, 10) + unit
		}
	}
	return strconv.FormatInt(size, 10) + "B"
}

// sizeIn is ParseSize within least and most bytes, both allowed.
func sizeIn(least, most int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		size, err := ParseSize(text)
		if err != nil {
			return 0, err
		}
		if size < least || size > most {
			return 0, refuse(fmt.Sprintf("write %s to %s", FormatSize(least), FormatSize(most)),
				"%s is out of range", quote(text))
		}
		return size, nil
	}
}
