package main

import (
	"os"
	"testing"

	"github.com/aether-gateway/gateway/internal/testservices"
)

func TestMain(m *testing.M) { os.Exit(testservices.Main(m)) }
