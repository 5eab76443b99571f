package hypervisor

// Coalesce passes UUIDs on, never makes their sender wait, and holds each UUID at most once: a
// reader that is slow sees fewer changes, and nothing grows beyond the number of domains. The result
// is closed, with what is held dropped, as soon as in is closed.
func Coalesce(in <-chan string) <-chan string {
	out := make(chan string)
	go func() {
		defer close(out)
		var waiting []string
		held := map[string]bool{}
		for {
			var next string
			var send chan<- string
			if len(waiting) > 0 {
				next, send = waiting[0], out
			}
			select {
			case uuid, open := <-in:
				if !open {
					return
				}
				if !held[uuid] {
					held[uuid] = true
					waiting = append(waiting, uuid)
				}
			case send <- next:
				waiting = waiting[1:]
				delete(held, next)
			}
		}
	}()
	return out
}
