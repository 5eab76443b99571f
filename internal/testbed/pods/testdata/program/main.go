// Command program runs in the containers of the tests. It reports its environment over HTTP.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	hostname, _ := os.Hostname()
	files := map[string]string{}
	for _, file := range os.Args[1:] {
		content, err := os.ReadFile(file)
		if err != nil {
			files[file] = err.Error()
			continue
		}
		files[file] = string(content)
	}
	http.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/say", func(_ http.ResponseWriter, request *http.Request) { fmt.Println(request.URL.Query().Get("text")) })
	http.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"user": os.Getuid(), "group": os.Getgid(), "host": hostname, "env": os.Environ(), "files": files,
			"writable": os.WriteFile("/written", nil, 0o600) == nil,
		})
	})
	server := &http.Server{Addr: ":8000", ReadHeaderTimeout: time.Minute}
	_ = server.ListenAndServe()
}
