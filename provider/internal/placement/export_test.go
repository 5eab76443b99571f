package placement

// Choose is choose with machines that are counted first, each once.
func Choose(request Request, hosts []Host, bound []Machine) (string, error) {
	counted := &tally{}
	for _, machine := range bound {
		if machine.UID != request.Machine.UID && !counted.has(machine.UID) {
			counted.set(machine)
		}
	}
	return choose(request, hosts, counted)
}
