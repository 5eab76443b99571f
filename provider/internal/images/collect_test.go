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

// seen is a collection with what is on a host at the moment.
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

// later lets time pass for a store.
func (f *fixture) later(by time.Duration) {
	f.lock.Lock()
	defer f.lock.Unlock()
	before := f.now
	f.now = func() time.Time { return before().Add(by) }
}

func domainXML(uuid, devices string) hypervisor.Definition {
	return hypervisor.Definition{UUID: uuid, Name: "d", XML: "<domain><name>d</name><uuid>" + uuid + "</uuid><memory>1024</memory><vcpu>1</vcpu><devices>" + devices + "</devices></domain>"}
}

// TestCollect: an image goes when nothing has used it for long enough, and stays when anything does.
func TestCollect(t *testing.T) {
	const uuid = "11111111-1111-4111-8111-111111111111"
	overlay := func(of Image, pool, name string) hypervisor.VolumeSpec {
		return hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: pool, Name: name}, Format: hypervisor.FormatQCOW2, CapacityBytes: diskBytes,
			Backing: &hypervisor.Backing{Path: of.Path, Format: of.Format}}
	}
	for _, tc := range []struct {
		name string
		// use does something with the image; late is whether the snapshot doesn't show it.
		use    func(f *fixture, host hypervisor.Hypervisor, image Image, wish Wish) error
		late   bool
		wanted bool
		stays  bool
		err    string
	}{
		{name: "nothing uses it"},
		{name: "a machine waits for it", wanted: true, stays: true},
		{name: "an overlay in its pool", stays: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, _ Wish) error {
			_, err := host.CreateVolume(t.Context(), overlay(image, "default", "root"))
			return err
		}},
		{name: "an overlay that is new", stays: true, late: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, _ Wish) error {
			_, err := host.CreateVolume(t.Context(), overlay(image, "default", "root"))
			return err
		}},
		{name: "an overlay in a pool that no LibvirtHost names", stays: true, late: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, _ Wish) error {
			_, err := host.CreateVolume(t.Context(), overlay(image, "other", "root"))
			return err
		}},
		{name: "somebody's overlay of the marker", stays: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, wish Wish) error {
			image.Path = "/fake/" + wish.markerRef().String()
			_, err := host.CreateVolume(t.Context(), overlay(image, "fast", "theirs"))
			return err
		}},
		{name: "somebody's domain with it as a disk", stays: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, _ Wish) error {
			return host.DefineDomain(t.Context(), domainXML(uuid, fmt.Sprintf("<disk><source pool='%s' volume='%s'/></disk>", image.Pool, image.Name)))
		}},
		{name: "somebody's domain with its path", stays: true, late: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, _ Wish) error {
			return host.DefineDomain(t.Context(), domainXML(uuid, "<disk><source file='"+image.Path+"'/></disk>"))
		}},
		{name: "somebody's domain with an overlay of an overlay that is in no pool", stays: true, late: true, use: func(_ *fixture, host hypervisor.Hypervisor, image Image, _ Wish) error {
			return host.DefineDomain(t.Context(), domainXML(uuid,
				"<disk><source file='/a'/><backingStore><source file='/b'/><backingStore><source file='"+image.Path+"'/></backingStore></backingStore></disk>"))
		}},
		{name: "a pool that can't be looked into", stays: true, err: "storage pool lost isn't active", use: func(f *fixture, _ hypervisor.Hypervisor, _ Image, _ Wish) error {
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
				f.Expect(f.Collect(t.Context(), collection)).To(BeZero(), "not for long enough")
				f.later(day / 3)
			}
			f.Expect(f.fakes.hosts["one"].Calls()).To(BeEmpty(), "to wait costs the host nothing")
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
			f.Expect(f.eventually(wish, machine(2)).Path).ToNot(Equal(image.Path), "it comes again when somebody wants it")
		})
	}
}

// TestCollectHalfImages: contents without a marker go when they have been the same for long enough,
// markers of nothing go, and nothing else that is there does.
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
	const age = time.Minute // less than half images get
	f.Expect(f.Collect(t.Context(), f.seen("one", age))).To(BeZero())
	f.later(strayAge - 1)
	f.Expect(host.UploadVolume(t.Context(), half.VolumeRef, strings.NewReader("more"), 4)).To(Succeed())
	collected, err := f.Collect(t.Context(), f.seen("one", age))
	f.Expect(err).ToNot(HaveOccurred())
	f.Expect(collected).To(Equal(Collected{Images: []string{strings.TrimPrefix(other.marker(), namePrefix)}}), "the marker of nothing")
	f.Expect(f.volumes("one")).To(HaveLen(len(before)-1), "somebody fills the other one")
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

// collectSeeds is how many times what is left to chance is tried.
const collectSeeds = 400

// TestCollectRaces lets machines be made and deleted on a host, and images be brought there and deleted
// by two managers, without any age and one call after the other in an order that the seed chooses, while
// calls fail and answers are lost. What is below an overlay that a machine was told to use is there as
// long as the overlay is.
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
		machines := []*maker{{name: "a"}, {name: "b"}, {name: "c"}}
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
					t.Fatalf("seed %d: what the disk of %s is an overlay of is gone: %v", seed, m.name, host.Calls())
				}
			}
		}
		for _, m := range machines {
			confirmed += m.confirmed
			refused += m.refused
		}
	}
	t.Logf("%d machines were made, and %d overlays weren't used because their image was deleted meanwhile", confirmed, refused)
	if confirmed < collectSeeds || refused == 0 {
		t.Errorf("too little happened for this to show anything: %d machines were made, and %d overlays weren't used", confirmed, refused)
	}
}

// maker is a machine, as far as its image and root disk go.
type maker struct {
	name string
	// below is the path of what its disk is an overlay of, from when it was told to use it on.
	below              string
	confirmed, refused int
}

// live makes the disk several times, as the machine's controller does, and deletes it.
func (m *maker) live(host hypervisor.Hypervisor, wish Wish) {
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
		there, err := Confirm(ctx, host, wish, image)
		if err != nil {
			continue
		}
		if !there {
			m.refused++
			continue
		}
		m.confirmed++
		m.below = disk.BackingPath
		_, _ = host.Volume(ctx, root) // it runs for a while
		_, _ = host.Volume(ctx, root)
		m.below = ""
		_ = host.DeleteVolume(ctx, root)
	}
}

// bring brings the image to the host, as a transfer does.
func (m *maker) bring(host hypervisor.Hypervisor, wish Wish, attempt int) {
	ctx := context.Background()
	made, err := host.CreateVolume(ctx, hypervisor.VolumeSpec{Format: hypervisor.FormatQCOW2, CapacityBytes: diskBytes,
		VolumeRef: hypervisor.VolumeRef{Pool: wish.Pool, Name: fmt.Sprintf("%s.%011x%s", wish.marker(), attempt, m.name)}})
	if err == nil {
		_ = mark(ctx, volumes{host}, wish, Image{VolumeRef: made.VolumeRef, Path: made.Path, Format: wish.format(), CapacityBytes: diskBytes})
	}
}

// actor is somebody who makes one call to a host at a time, each when it is let.
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

// step lets the actor make its next call, and everything up to the one after it. It says whether there is one.
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
