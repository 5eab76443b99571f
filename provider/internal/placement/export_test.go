package placement

// Choose is choose with a list of placed machines, where each counts once.
func Choose(request Request, hosts []Host, bound []Machine) (string, error) {
	counted := &tally{}
	for _, machine := range bound {
		if _, twice := counted.machines[machine.UID]; machine.UID != request.Machine.UID && !twice {
			counted.set(machine)
		}
	}
	return choose(request, hosts, counted)
}
