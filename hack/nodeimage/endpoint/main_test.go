package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// TestConfiguration checks that keepalived's configuration has the address, the interface and the number of the router.
func TestConfiguration(t *testing.T) {
	for address, texts := range map[string][]string{
		"10.90.0.200": {"interface eth0\n", "virtual_router_id 200\n", "    10.90.0.200/32\n"},
		"10.90.0.0":   {"virtual_router_id 1\n"}, // 0 isn't a valid number of a router
		"fd00::7":     {"virtual_router_id 7\n", "    fd00::7/128\n"},
	} {
		got := configuration(netip.MustParseAddr(address), "eth0")
		for _, want := range texts {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q isn't in\n%s", address, want, got)
			}
		}
	}
}

// TestInterfaceTo checks that the interface is the one with the source address of packets.
func TestInterfaceTo(t *testing.T) {
	name, err := interfaceTo(netip.MustParseAddr("127.0.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	if found, err := net.InterfaceByName(name); err != nil || found.Flags&net.FlagLoopback == 0 {
		t.Errorf("the interface to 127.0.0.2 is %s: %v", name, err)
	}
}

// TestCheckAPIServer checks that only an API server with the status 200 is healthy.
func TestCheckAPIServer(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/livez" {
			status = http.StatusNotFound
		}
		response.WriteHeader(status)
	}))
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("port", address.Port())
	if err := checkAPIServer(); err != nil {
		t.Error(err)
	}
	status = http.StatusInternalServerError
	if err := checkAPIServer(); err == nil || !strings.Contains(err.Error(), "500") {
		t.Errorf("an unhealthy server: %v", err)
	}
	server.Close()
	if err := checkAPIServer(); err == nil {
		t.Error("a stopped server is healthy")
	}
}

// TestRunKeepalivedWithoutAddress checks that the error names the variable.
func TestRunKeepalivedWithoutAddress(t *testing.T) {
	t.Setenv("address", "")
	if err := runKeepalived(); err == nil || !strings.Contains(err.Error(), "the environment variable address") {
		t.Errorf("got the error %v", err)
	}
}
