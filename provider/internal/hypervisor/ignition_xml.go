package hypervisor

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// IgnitionEntries are the entries of the firmware configuration device with the Ignition configuration: Ignition's own
// (https://coreos.github.io/ignition/supported-platforms/) and Flatcar's.
var IgnitionEntries = []string{"opt/com.coreos/config", "opt/org.flatcar-linux/config"}

// RemoveIgnitionXML removes the Ignition configuration, if any, from a domain's XML. Everything else stays byte for
// byte: see ResizeDomainXML.
func RemoveIgnitionXML(text string) (string, error) {
	for _, name := range IgnitionEntries {
		var err error
		if text, err = removeEntryXML(text, name); err != nil {
			return "", err
		}
	}
	return text, nil
}

// removeEntryXML removes an entry of the firmware configuration device, and the device without entries.
func removeEntryXML(text, name string) (string, error) {
	decoder := xml.NewDecoder(strings.NewReader(text))
	var path []string
	var system, entry, cut piece // the current sysinfo element, the entry in it, and the removed part
	entries := 0
	for {
		from := decoder.InputOffset()
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return text[:cut.from] + text[cut.to:], nil
		}
		if err != nil {
			return "", fmt.Errorf("reading a domain's XML: %w", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			path = append(path, token.Name.Local)
			switch strings.Join(path, "/") {
			case "domain/sysinfo":
				system, entry, entries = piece{from: from}, piece{}, 0
			case "domain/sysinfo/entry":
				entries++
				if hasName(token, name) {
					entry = piece{from: from, start: token.Copy()}
				}
			}
		case xml.EndElement:
			at := strings.Join(path, "/")
			path = path[:len(path)-1]
			switch {
			case at == "domain/sysinfo/entry" && entry.start.Name.Local != "" && entry.to == 0:
				entry.to = decoder.InputOffset()
			case at == "domain/sysinfo" && entry.to > 0 && entries == 1:
				cut = piece{from: system.from, to: decoder.InputOffset()}
			case at == "domain/sysinfo" && entry.to > 0:
				cut = entry
			}
		}
	}
}

func hasName(element xml.StartElement, name string) bool {
	for _, attribute := range element.Attr {
		if attribute.Name.Local == "name" {
			return attribute.Value == name
		}
	}
	return false
}
