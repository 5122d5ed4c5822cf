package docs

import (
	"strings"
	"testing"

	"weir/cmd/weir/internal/config/vendors"
)

// TestDocsOfVendors: the topic has a table for each vendor, with a row for each fact of its profile. UPDATE_GOLDEN=1
// writes them.
func TestDocsOfVendors(t *testing.T) {
	t.Parallel()
	var tables []table
	for _, p := range vendors.Profiles() {
		text := "| field | default | what the vendor documents | source |\n|---|---|---|---|\n"
		for _, fact := range p.Facts {
			if strings.Contains(fact.Value+fact.Says+fact.Page, "|") {
				t.Errorf("%s of vendor %s has a |, which no cell of a table can hold", fact.Field, p.Name)
			}
			text += "| " + fieldOf(fact) + " | `" + fact.Value + "` | " + fact.Says + " | " + fact.Page + ", " + fact.Date + " |\n"
		}
		tables = append(tables, table{"## `" + p.Name + "`", text})
	}
	holdToTables(t, "vendors", tables)
}

// fieldOf names the field of a fact. Names that the vendor or the user chooses stand apart from those of weir's fields.
func fieldOf(fact vendors.Fact) string {
	first, rest, _ := strings.Cut(fact.Field, ".")
	switch first {
	case "limits":
		name, field, _ := strings.Cut(rest, ".")
		return "`limits`: `" + name + "`: `" + field + "`"
	case "usage", "headers":
		return "`" + first + "`: `" + rest + "`"
	}
	return "`" + fact.Field + "`"
}
