package config_test

import (
	"os"
	"testing"

	"weir/cmd/weir/internal/config"
)

func TestContractSmoke(t *testing.T) {
	data, err := os.ReadFile("testdata/contract.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(data, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", c.APIs[0])
	for _, w := range c.Warnings {
		t.Log(w)
	}
	s, err := config.ReadSettings()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(s.Redacted())
}
