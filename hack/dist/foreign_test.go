package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/macho"
	"debug/pe"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/program"
)

// TestForeignPrograms checks that the programs for Windows and macOS have valid headers and the version, and need only
// libraries of their systems. It doesn't run them: Go's runtime finds no bcryptprimitives.dll in Debian's Wine.
func TestForeignPrograms(t *testing.T) {
	if !*cleanMachine {
		t.Skip("compiling for four platforms takes long: make clean-machine")
	}
	const version = "v1.2.3-rc.7"
	compile := func(t *testing.T, system, architecture string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), name+".exe")
		if err := program.Tool(version).Compile(t.Context(), pinned.Root(t), program.Platform{OS: system, Architecture: architecture}, file); err != nil {
			t.Fatal(err)
		}
		requireStamps(t, file, version, system, architecture)
		return file
	}
	for architecture, processor := range map[string]uint16{"amd64": pe.IMAGE_FILE_MACHINE_AMD64, "arm64": pe.IMAGE_FILE_MACHINE_ARM64} {
		t.Run("windows "+architecture, func(t *testing.T) { requirePE(t, compile(t, "windows", architecture), processor) })
	}
	for architecture, processor := range map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64} {
		t.Run("darwin "+architecture, func(t *testing.T) { requireMachO(t, compile(t, "darwin", architecture), processor) })
	}
}

// requireStamps fails the test unless a program is for a platform and has its version.
func requireStamps(t *testing.T, file, version, system, architecture string) {
	t.Helper()
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	if settings["GOOS"] != system || settings["GOARCH"] != architecture || settings["CGO_ENABLED"] != "0" {
		t.Errorf("the program's build settings are %v", settings)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte(version)) {
		t.Errorf("the program lacks its version %s", version)
	}
}

// requirePE fails the test unless a file is a console program for Windows.
func requirePE(t *testing.T, file string, processor uint16) {
	t.Helper()
	f, err := pe.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // the file is only read
	header, ok := f.OptionalHeader.(*pe.OptionalHeader64)
	if !ok || f.Machine != processor || f.Characteristics&pe.IMAGE_FILE_EXECUTABLE_IMAGE == 0 || header.Subsystem != pe.IMAGE_SUBSYSTEM_WINDOWS_CUI {
		t.Errorf("the headers are %+v, %+v", f.FileHeader, f.OptionalHeader)
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var libraries []string
	for _, symbol := range symbols {
		_, library, _ := strings.Cut(symbol, ":")
		if library = strings.ToLower(library); !slices.Contains(libraries, library) {
			libraries = append(libraries, library)
		}
	}
	if !slices.Equal(libraries, []string{"kernel32.dll"}) {
		t.Errorf("the program imports %v", libraries)
	}
}

// requireMachO fails the test unless a file is a program for macOS with a signature. Programs without any signature
// don't start on Apple's processors.
func requireMachO(t *testing.T, file string, processor macho.Cpu) {
	t.Helper()
	f, err := macho.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // the file is only read
	if f.Cpu != processor || f.Type != macho.TypeExec {
		t.Errorf("the header is %+v", f.FileHeader)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil || len(libraries) == 0 {
		t.Fatalf("the program imports %v, %v", libraries, err)
	}
	for _, library := range libraries {
		if !strings.HasPrefix(library, "/usr/lib/") && !strings.HasPrefix(library, "/System/Library/") {
			t.Errorf("the program imports %s, which macOS lacks", library)
		}
	}
	const codeSignature = 0x1d // LC_CODE_SIGNATURE of mach-o/loader.h
	signed := slices.ContainsFunc(f.Loads, func(load macho.Load) bool {
		raw := load.Raw()
		return len(raw) >= 4 && f.ByteOrder.Uint32(raw) == codeSignature
	})
	if processor == macho.CpuArm64 && !signed {
		t.Error("the program has no signature")
	}
}
