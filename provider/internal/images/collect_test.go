package images

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

const day = 24 * time.Hour

// seen returns a collection with the current volumes and domains of a host.
func (f *fixture) seen(host string, age time.Duration) Collection {
	f.t.Helper()
	connected, err := f.fakes.hypervisor(host)
	f.Expect(err).ToNot(HaveOccurred())
	now, err := readUsage(f.t.Context(), connected)
	f.Expect(err).ToNot(HaveOccurred())
	domains, err := connected.ListDomains(f.t.Context())
	f.Expect(err).ToNot(HaveOccurred())
	return Collection{Host: host, Pools: []string{"default", "fast"}, Age: age, Volumes: now.volumes, Domains: domains}
}

// later moves a store's clock forward.
func (f *fixture) later(by time.Duration) {
	f.lock.Lock()
	defer f.lock.Unlock()
	before := f.now
	f.now = func() time.Time { return before().Add(by) }
}

func domainXML(uuid, devices string) hypervisor.Definition {
	return hypervisor.Definition{UUID: uuid, Name: "d", XML: "<domain><name>d</name><uuid>" + uuid + "</uuid><memory>1024</memory><vcpu>1</vcpu><devices>" + devices + "</devices></domain>"}
}

// TestCollect checks that an image is deleted after it has been unused for long enough, and that every use keeps it.
func TestCollect(t *testing.T) {
	const uuid = "11111111-1111-4111-8111-111111111111"
	overlay := func(of Image, pool, name string) hypervisor.VolumeSpec {
		return hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: pool, Name: name}, Format: hypervisor.FormatQCOW2, CapacityBytes: diskBytes,
			Backing: &hypervisor.Backing{Path: of.Path, Format: of.Format}}
	}
	for _, tc := range []struct {
		name string
		// use uses the image. late means that the snapshot is from before the use.
		use    func(f *fixture, host hypervisor.Hypervisor, image Image, wish Wish) error
		late   bool
		wanted bool
		stays  bool
		err    string
	}{
		{name: "unused"},
		{name: "a machine waits for the image", wanted: true, stays: true},
		{name: "an overlay in its pool", stays: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, _ Wish) error {
			_, err := host.CreateVolume(t.Context(), overlay(image, "default", "root"))
			return err
		}},
		{name: "a new overlay", stays: true, late: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, _ Wish) error {
			_, err := host.CreateVolume(t.Context(), overlay(image, "default", "root"))
			return err
		}},
		{name: "an overlay in a pool that no LibvirtHost names", stays: true, late: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, _ Wish) error {
			_, err := host.CreateVolume(t.Context(), overlay(image, "other", "root"))
			return err
		}},
		{name: "a foreign overlay of the marker", stays: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, wish Wish) error {
			image.Path = "/fake/" + wish.markerRef().String()
			_, err := host.CreateVolume(t.Context(), overlay(image, "fast", "theirs"))
			return err
		}},
		{name: "a foreign domain with the image as a disk", stays: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, _ Wish) error {
			return host.DefineDomain(t.Context(), domainXML(uuid, fmt.Sprintf("<disk><source pool='%s' volume='%s'/></disk>", image.Pool, image.Name)))
		}},
		{name: "a foreign domain with the path of the image", stays: true, late: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, _ Wish) error {
			return host.DefineDomain(t.Context(), domainXML(uuid, "<disk><source file='"+image.Path+"'/></disk>"))
		}},
		{name: "a foreign domain with an overlay of an overlay outside of all pools", stays: true, late: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, _ Wish) error {
			return host.DefineDomain(t.Context(), domainXML(uuid,
				"<disk><source file='/a'/><backingStore><source file='/b'/><backingStore><source file='"+image.Path+"'/></backingStore></backingStore></disk>"))
		}},
		{name: "an inactive pool", stays: true, err: "storage pool lost is inactive", use: func(f *fixture, _ hypervisor.Hypervisor, _ Image, _ Wish) error {
			f.fakes.hosts["one"].SetPool(hypervisor.Pool{Name: "lost"})
			return nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t, newHosts("one"), Options{Retention: day})
			for _, pool := range []string{"fast", "other"} {
				f.fakes.hosts["one"].SetPool(hypervisor.Pool{Name: pool, Active: true, CapacityBytes: 1 << 40, AvailableBytes: 1 << 40})
			}
			content := qcow2Image(nil)
			wish := wishFor(serve(t, serving(content)).URL, content)
			image := f.eventually(wish, machine(1))
			collection := f.seen("one", day)
			host, err := f.fakes.hypervisor("one")
			f.Expect(err).ToNot(HaveOccurred())
			if tc.use != nil {
				f.Expect(tc.use(f, host, image, wish)).To(Succeed())
			}
			if !tc.late && tc.err == "" {
				collection = f.seen("one", day)
			}
			if tc.wanted {
				collection.Wanted = []Wish{{Checksum: wish.Checksum, Format: wish.Format}}
			}
			f.fakes.hosts["one"].ForgetCalls()
			for range 3 {
				f.Expect(f.Collect(t.Context(), collection)).To(BeZero(), "unused, but not for long enough")
				f.later(day / 3)
			}
			f.Expect(f.fakes.hosts["one"].Calls()).To(BeEmpty(), "waiting needs no calls")
			collected, err := f.Collect(t.Context(), collection)
			if tc.err != "" {
				f.Expect(err).To(MatchError(ContainSubstring(tc.err)))
			} else {
				f.Expect(err).ToNot(HaveOccurred())
			}
			if tc.stays {
				f.Expect(collected).To(BeZero())
				f.Expect(f.volumes("one")).To(ContainElements(whole(wish)))
				return
			}
			f.Expect(collected.Images).To(Equal([]string{strings.TrimPrefix(wish.marker(), namePrefix)}))
			f.Expect(collected.HalfImages).To(BeZero())
			f.Expect(collected.Bytes).To(BeEquivalentTo(len(content)))
			f.Expect(f.volumes("one")).To(BeEmpty())
			f.Expect(f.eventually(wish, machine(2)).Path).ToNot(Equal(image.Path), "a new request downloads the image again")
		})
	}
}

// TestCollectHalfImages checks that contents without a marker are deleted after they have been unchanged for long
// enough, that markers without a content are deleted, and that all other volumes stay.
func TestCollectHalfImages(t *testing.T) {
	f := newFixture(t, newHosts("one"), Options{})
	host, err := f.fakes.hypervisor("one")
	f.Expect(err).ToNot(HaveOccurred())
	wish := wishFor("http://nowhere", []byte("x"))
	create := func(name string, backing *hypervisor.Backing) hypervisor.Volume {
		volume, err := host.CreateVolume(t.Context(), hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: name},
			Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 20, Backing: backing})
		f.Expect(err).ToNot(HaveOccurred())
		return volume
	}
	half := create(wish.marker()+".0123456789ab", nil)
	below := create(wish.marker()+".ba9876543210", nil)
	create("root", &hypervisor.Backing{Path: below.Path, Format: below.Format})
	nothing := create("nothing", nil)
	other := wishFor("http://nowhere", []byte("y"))
	create(other.marker(), &hypervisor.Backing{Path: nothing.Path, Format: nothing.Format})
	f.Expect(host.DeleteVolume(t.Context(), nothing.VolumeRef)).To(Succeed())
	foreign := []string{namePrefix + "sha256-short.qcow2", namePrefix + "of-mine", wish.marker() + ".backup", wish.marker() + ".0123456789ab.old"}
	for _, name := range foreign {
		create(name, nil)
	}
	before := f.volumes("one")
	const age = time.Minute // shorter than strayAge
	f.Expect(f.Collect(t.Context(), f.seen("one", age))).To(BeZero())
	f.later(strayAge - 1)
	f.Expect(host.UploadVolume(t.Context(), half.VolumeRef, strings.NewReader("more"), 4)).To(Succeed())
	collected, err := f.Collect(t.Context(), f.seen("one", age))
	f.Expect(err).ToNot(HaveOccurred())
	f.Expect(collected).To(Equal(Collected{Images: []string{strings.TrimPrefix(other.marker(), namePrefix)}}), "the marker without a content")
	f.Expect(f.volumes("one")).To(HaveLen(len(before)-1), "an upload may be filling the other one")
	f.later(strayAge)
	f.Expect(f.Collect(t.Context(), f.seen("one", age))).To(Equal(Collected{HalfImages: 1, Bytes: 4}))
	left, _ := f.fakes.hosts["one"].Left()
	var names []string
	for _, ref := range left {
		names = append(names, ref.Name)
	}
	f.Expect(names).To(ConsistOf(append(foreign, below.Name, "root")))
	f.ForgetHost("one")
	f.Expect(f.unused).To(BeEmpty())
}

// collectSeeds is the number of random orders that TestCollectRaces tries.
const collectSeeds = 400

// TestCollectRaces creates and deletes machines on a host while two managers transfer and delete images without any
// retention. The seed chooses the order of all calls; some calls fail and some answers are lost. The backing volume of
// an overlay must exist from the confirmation to the deletion of the overlay.
func TestCollectRaces(t *testing.T) {
	confirmed, refused := 0, 0
	for seed := range uint64(collectSeeds) {
		random := rand.New(rand.NewPCG(seed, 1))
		host := fake.NewHost()
		for _, operation := range []fake.Operation{fake.DeleteVolume, fake.CreateVolume, fake.PoolVolumes, fake.Volume, fake.ListDomains} {
			if random.IntN(3) == 0 {
				host.Inject(fake.Fault{Operation: operation, Skip: random.IntN(15), Effect: fake.Fail, Reason: hypervisor.ErrTimeout, AfterDone: random.IntN(2) == 0})
			}
		}
		connected, err := host.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wish := wishFor("http://nowhere", []byte("image"))
		machines := []*raceMachine{{name: "a"}, {name: "b"}, {name: "c"}}
		var actors []*actor
		for _, m := range machines {
			actors = append(actors, act(connected, func(h hypervisor.Hypervisor) { m.live(h, wish) }))
		}
		for range 2 {
			actors = append(actors, act(connected, func(h hypervisor.Hypervisor) {
				store := New(func(string) (hypervisor.Hypervisor, error) { return h, nil }, func(string) []string { return nil }, Options{})
				for range 4 {
					now, err := readUsage(context.Background(), h)
					if err == nil {
						_, _ = store.Collect(context.Background(), Collection{Host: "one", Pools: []string{"default"}, Volumes: now.volumes})
					}
				}
			}))
		}
		for len(actors) > 0 {
			at := random.IntN(len(actors))
			if !actors[at].step() {
				actors = slices.Delete(actors, at, at+1)
			}
			left, _ := host.Left()
			for _, m := range machines {
				if m.below != "" && !slices.ContainsFunc(left, func(ref hypervisor.VolumeRef) bool { return "/fake/"+ref.String() == m.below }) {
					t.Fatalf("seed %d: the backing volume of the disk of %s doesn't exist: %v", seed, m.name, host.Calls())
				}
			}
		}
		for _, m := range machines {
			confirmed += m.confirmed
			refused += m.refused
		}
	}
	t.Logf("%d machines were created, and %d overlays weren't used because their image was deleted", confirmed, refused)
	if confirmed < collectSeeds || refused == 0 {
		t.Errorf("too few events for a result: %d machines were created, and %d overlays weren't used", confirmed, refused)
	}
}

// raceMachine creates and deletes the root disk of a machine.
type raceMachine struct {
	name string
	// below is the path of the disk's backing volume while the machine uses the disk.
	below              string
	confirmed, refused int
}

// live creates and deletes the disk several times, as the machine's controller does.
func (m *raceMachine) live(host hypervisor.Hypervisor, wish Wish) {
	ctx := context.Background()
	root := hypervisor.VolumeRef{Pool: "default", Name: "root-" + m.name}
	for attempt := range 6 {
		image, err := look(ctx, host, wish)
		if errors.Is(err, errMissing) {
			m.bring(host, wish, attempt)
			continue
		}
		if err != nil {
			continue
		}
		disk, err := host.Volume(ctx, root)
		if err == nil && disk.BackingPath != image.Path {
			_ = host.DeleteVolume(ctx, root)
			continue
		}
		if errors.Is(err, hypervisor.ErrNotFound) {
			disk, err = host.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: root, Format: hypervisor.FormatQCOW2, CapacityBytes: diskBytes,
				Backing: &hypervisor.Backing{Path: image.Path, Format: image.Format}})
		}
		if err != nil {
			continue
		}
		exists, err := Confirm(ctx, host, wish, image)
		if err != nil {
			continue
		}
		if !exists {
			m.refused++
			continue
		}
		m.confirmed++
		m.below = disk.BackingPath
		_, _ = host.Volume(ctx, root) // the machine runs for a while
		_, _ = host.Volume(ctx, root)
		m.below = ""
		_ = host.DeleteVolume(ctx, root)
	}
}

// bring creates the image on the host, as a transfer does.
func (m *raceMachine) bring(host hypervisor.Hypervisor, wish Wish, attempt int) {
	ctx := context.Background()
	content, err := host.CreateVolume(ctx, hypervisor.VolumeSpec{Format: hypervisor.FormatQCOW2, CapacityBytes: diskBytes,
		VolumeRef: hypervisor.VolumeRef{Pool: wish.Pool, Name: fmt.Sprintf("%s.%011x%s", wish.marker(), attempt, m.name)}})
	if err == nil {
		_ = mark(ctx, volumes{host}, wish, Image{VolumeRef: content.VolumeRef, Path: content.Path, Format: wish.format(), CapacityBytes: diskBytes})
	}
}

// actor makes one call to a host at a time, each when the test allows it.
type actor struct {
	hypervisor.Hypervisor
	let, waits chan struct{}
}

func act(host hypervisor.Hypervisor, do func(hypervisor.Hypervisor)) *actor {
	a := &actor{Hypervisor: host, let: make(chan struct{}), waits: make(chan struct{})}
	go func() {
		defer close(a.waits)
		<-a.let
		do(a)
	}()
	return a
}

// step allows the actor's next call, and returns before the one after it. It reports whether there is one.
func (a *actor) step() bool {
	a.let <- struct{}{}
	_, more := <-a.waits
	return more
}

func (a *actor) wait() {
	a.waits <- struct{}{}
	<-a.let
}

func (a *actor) Volume(ctx context.Context, ref hypervisor.VolumeRef) (hypervisor.Volume, error) {
	a.wait()
	return a.Hypervisor.Volume(ctx, ref)
}

func (a *actor) CreateVolume(ctx context.Context, spec hypervisor.VolumeSpec) (hypervisor.Volume, error) {
	a.wait()
	return a.Hypervisor.CreateVolume(ctx, spec)
}

func (a *actor) DeleteVolume(ctx context.Context, ref hypervisor.VolumeRef) error {
	a.wait()
	return a.Hypervisor.DeleteVolume(ctx, ref)
}

func (a *actor) PoolVolumes(ctx context.Context, pool string) ([]hypervisor.Volume, error) {
	a.wait()
	return a.Hypervisor.PoolVolumes(ctx, pool)
}

func (a *actor) ListDomains(ctx context.Context) ([]hypervisor.Domain, error) {
	a.wait()
	return a.Hypervisor.ListDomains(ctx)
}
