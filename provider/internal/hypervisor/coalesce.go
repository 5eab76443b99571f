package hypervisor

// Coalesce passes UUIDs on. A sender never waits, and each UUID is queued at most once, so that a slow reader sees
// fewer changes and the queue stays small. When in is closed, the queue is dropped and the result is closed.
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
