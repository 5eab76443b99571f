package seed

import (
	"encoding/binary"
	"strings"
	"unicode/utf16"
)

// The existing libraries for ISO 9660 write files to a temporary folder and the time into the image. A seed has
// secrets, and the same seed must give the same bytes. This file writes only one folder, with Rock Ridge names (Linux,
// BSD) and Joliet names (Windows), after ECMA-119, IEEE P1281 and P1282.

const (
	sector = 2048

	// primaryAt is the sector of the primary volume descriptor, and the following constants are sectors too. The first
	// 16 sectors are reserved for the system and empty.
	primaryAt       = 16
	jolietAt        = 17
	terminatorAt    = 18
	primaryTableAt  = 19 // one sector for little endian, one for big endian
	jolietTableAt   = 21
	primaryFolderAt = 23
	jolietFolderAt  = 24
	firstFileAt     = 25

	pathTableSize = 10

	flagFolder = 2

	modeFolder = 0o040555
	// modeFile lets only root read the files, because they contain secrets.
	modeFile = 0o100400
)

// recordingTime is 1 January 1980, midnight UTC, for every file.
var recordingTime = [7]byte{80, 1, 1}

// isoFile is a file in the root folder of an image.
type isoFile struct {
	name    string
	content []byte
}

// writeISO writes an image. The files must be few and ordered by name, with short ASCII names without a dot: all
// records of a folder must fit into one sector.
func writeISO(volume string, files []isoFile) []byte {
	places := make([]uint32, len(files))
	next := uint32(firstFileAt)
	for i, file := range files {
		places[i] = next
		next += uint32((len(file.content) + sector - 1) / sector) //nolint:gosec // maxSize is far below
	}
	image := make([]byte, int(next)*sector)
	at := func(place int) []byte { return image[place*sector : (place+1)*sector] }

	writeDescriptor(at(primaryAt), 1, volume, next, primaryTableAt, primaryFolderAt)
	writeDescriptor(at(jolietAt), 2, volume, next, jolietTableAt, jolietFolderAt)
	copy(at(terminatorAt), "\xffCD001\x01")
	writePathTables(at(primaryTableAt), at(primaryTableAt+1), primaryFolderAt)
	writePathTables(at(jolietTableAt), at(jolietTableAt+1), jolietFolderAt)

	primary, joliet := at(primaryFolderAt)[:0], at(jolietFolderAt)[:0]
	self := append(sharingProtocol(), attributes(modeFolder, 2)...)
	primary = append(primary, record(primaryFolderAt, sector, flagFolder, "\x00", append(self, rockRidge()...))...)
	primary = append(primary, record(primaryFolderAt, sector, flagFolder, "\x01", attributes(modeFolder, 2))...)
	joliet = append(joliet, record(jolietFolderAt, sector, flagFolder, "\x00", nil)...)
	joliet = append(joliet, record(jolietFolderAt, sector, flagFolder, "\x01", nil)...)
	for i, file := range files {
		size := uint32(len(file.content)) //nolint:gosec // maxSize is far below
		plain := strings.ToUpper(strings.ReplaceAll(file.name, "-", "_")) + ".;1"
		primary = append(primary, record(places[i], size, 0, plain, append(attributes(modeFile, 1), alternateName(file.name)...))...)
		joliet = append(joliet, record(places[i], size, 0, ucs2(file.name), nil)...)
		copy(image[int(places[i])*sector:], file.content)
	}
	return image
}

// writeDescriptor writes a volume descriptor (ECMA-119, 8.4 and 8.5). Kind 1 is the primary one, and kind 2 is
// Joliet's, with two bytes for each character.
func writeDescriptor(out []byte, kind byte, volume string, sectors, table, folder uint32) {
	text := func(from, to int, value string) {
		if kind == 2 {
			value = ucs2(value + strings.Repeat(" ", (to-from)/2-len(value)))
		} else {
			value += strings.Repeat(" ", to-from-len(value))
		}
		copy(out[from:to], value)
	}
	out[0] = kind
	copy(out[1:], "CD001\x01")
	text(8, 40, "")
	text(40, 72, volume)
	bothEndian32(out[80:], sectors)
	if kind == 2 {
		copy(out[88:], "%/E") // Joliet's mark for UCS-2, level 3
	}
	bothEndian16(out[120:], 1)
	bothEndian16(out[124:], 1)
	bothEndian16(out[128:], sector)
	bothEndian32(out[132:], pathTableSize)
	binary.LittleEndian.PutUint32(out[140:], table)
	binary.BigEndian.PutUint32(out[148:], table+1)
	copy(out[156:], record(folder, sector, flagFolder, "\x00", nil))
	for _, field := range [][2]int{{190, 318}, {318, 446}, {446, 574}, {574, 702}, {702, 739}, {739, 776}, {776, 813}} {
		text(field[0], field[1], "")
	}
	for from := 813; from < 881; from += 17 {
		copy(out[from:], "0000000000000000\x00") // no time
	}
	out[881] = 1
}

// writePathTables writes both tables of folders (ECMA-119, 9.4), with the root in them.
func writePathTables(little, big []byte, folder uint32) {
	little[0], big[0] = 1, 1
	binary.LittleEndian.PutUint32(little[2:], folder)
	binary.BigEndian.PutUint32(big[2:], folder)
	binary.LittleEndian.PutUint16(little[6:], 1)
	binary.BigEndian.PutUint16(big[6:], 1)
}

// record is an entry of a folder (ECMA-119, 9.1), with a system use area.
func record(place, size uint32, flags byte, name string, systemUse []byte) []byte {
	length := 33 + len(name)
	length += length % 2
	out := make([]byte, length, length+len(systemUse))
	bothEndian32(out[2:], place)
	bothEndian32(out[10:], size)
	copy(out[18:], recordingTime[:])
	out[25] = flags
	bothEndian16(out[28:], 1)
	out[32] = byte(len(name)) //nolint:gosec // names are short
	copy(out[33:], name)
	out = append(out, systemUse...)
	if len(out)%2 == 1 {
		out = append(out, 0)
	}
	out[0] = byte(len(out)) //nolint:gosec // names are short
	return out
}

// sharingProtocol announces system use areas (P1281, 5.3).
func sharingProtocol() []byte {
	return []byte{'S', 'P', 7, 1, 0xbe, 0xef, 0}
}

// rockRidge announces Rock Ridge (P1281, 5.5), with the identifier that every reader knows.
func rockRidge() []byte {
	const name = "RRIP_1991A"
	return append([]byte{'E', 'R', byte(8 + len(name)), 1, byte(len(name)), 0, 0, 1}, name...)
}

// attributes returns the mode and the number of links of a file, with owner and group 0 (P1282, 4.1.1).
func attributes(mode, links uint32) []byte {
	const length = 36
	out := make([]byte, length)
	copy(out, []byte{'P', 'X', length, 1})
	bothEndian32(out[4:], mode)
	bothEndian32(out[12:], links)
	return out
}

// alternateName returns the real name of a file (P1282, 4.1.4).
func alternateName(name string) []byte {
	return append([]byte{'N', 'M', byte(5 + len(name)), 1, 0}, name...) //nolint:gosec // names are short
}

func ucs2(text string) string {
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		out = binary.BigEndian.AppendUint16(out, unit)
	}
	return string(out)
}

func bothEndian16(out []byte, value uint16) {
	binary.LittleEndian.PutUint16(out, value)
	binary.BigEndian.PutUint16(out[2:], value)
}

func bothEndian32(out []byte, value uint32) {
	binary.LittleEndian.PutUint32(out, value)
	binary.BigEndian.PutUint32(out[4:], value)
}
