package images

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// Access restricts who may use an image.
type Access struct {
	// Namespace is the UID of the namespace. URLs and checksums aren't secret, so another namespace needs its own
	// credentials.
	Namespace types.UID
	// Secret is the name of the Secret.
	Secret string
	// Read reads the credentials for each attempt. Its errors are shown to users.
	Read func(context.Context) (Credentials, error)
}

// WishOf returns the request of a machine with an image URL. reader reads the namespace and the Secret.
func WishOf(ctx context.Context, reader client.Reader, host *infrav1.LibvirtHost, machine *infrav1.LibvirtMachine) (Wish, error) {
	spec := machine.Spec.Image
	wish := Wish{Host: host.Name, Pool: host.Spec.StoragePools.Images, URL: spec.URL, Checksum: spec.Checksum, Format: spec.Format}
	secret := client.ObjectKey{Namespace: machine.Namespace, Name: spec.SecretRef.Name}
	if secret.Name == "" {
		return wish, nil
	}
	namespace := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: machine.Namespace}, namespace); err != nil {
		return wish, fmt.Errorf("reading the namespace %s: %w", machine.Namespace, err)
	}
	wish.Access = &Access{Namespace: namespace.UID, Secret: secret.Name, Read: func(ctx context.Context) (Credentials, error) {
		return readSecret(ctx, reader, secret)
	}}
	return wish, nil
}

func readSecret(ctx context.Context, reader client.Reader, key client.ObjectKey) (Credentials, error) {
	secret := &corev1.Secret{}
	if err := reader.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return Credentials{}, fmt.Errorf("the Secret %s doesn't exist", key)
	} else if err != nil {
		return Credentials{}, fmt.Errorf("the Secret %s: %w", key, err)
	}
	if secret.Type != infrav1.ImageCredentialsSecretType {
		return Credentials{}, fmt.Errorf("the Secret %s isn't of type %s: Secrets of other types are not sent to servers", key, infrav1.ImageCredentialsSecretType)
	}
	credentials, err := readCredentials(secret.Data)
	if err != nil {
		return Credentials{}, fmt.Errorf("the Secret %s %w", key, err)
	}
	return credentials, nil
}

// Credentials are the credentials for a server of images.
type Credentials struct {
	// roots are the trusted authorities, or nil for the system's.
	roots *x509.CertPool
	// authorization is the value of the header, or empty.
	authorization string
}

// The keys of a Secret with credentials, next to those of package corev1.
const (
	caKey    = corev1.ServiceAccountRootCAKey
	tokenKey = corev1.ServiceAccountTokenKey
)

// readCredentials parses the data of a Secret: ca.crt, and either username and password or token. Errors show no
// values.
func readCredentials(data map[string][]byte) (Credentials, error) {
	var credentials Credentials
	user, password, token := string(data[corev1.BasicAuthUsernameKey]), string(data[corev1.BasicAuthPasswordKey]), strings.TrimSpace(string(data[tokenKey]))
	switch {
	case len(data[caKey]) == 0 && user == "" && password == "" && token == "":
		return credentials, errors.New("has no credentials: add username and password, or token, or ca.crt")
	case token != "" && (user != "" || password != ""):
		return credentials, errors.New("has username or password, and token: keep one of them")
	case (user == "") != (password == ""):
		return credentials, errors.New("has only one of username and password")
	case strings.Contains(user, ":"):
		return credentials, errors.New("has a colon in username, which ends it in HTTP")
	case strings.ContainsFunc(token, unicode.IsControl):
		return credentials, errors.New("has a line break or another control character in token")
	case token != "":
		credentials.authorization = "Bearer " + token
	case user != "":
		credentials.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	if ca := data[caKey]; len(ca) > 0 {
		credentials.roots = x509.NewCertPool()
		if !credentials.roots.AppendCertsFromPEM(ca) {
			return Credentials{}, errors.New("has no certificate in PEM under ca.crt")
		}
	}
	return credentials, nil
}

// accessError is an error of credentials that may be shown.
type accessError struct{ error }

func (e *accessError) Unwrap() error { return e.error }

// clientFor returns the client for one attempt. end closes its connections.
func (s *Store) clientFor(ctx context.Context, wish Wish) (_ *http.Client, end func(), err error) {
	if wish.Access == nil {
		return s.client, func() {}, nil
	}
	target, err := url.Parse(wish.URL)
	if err != nil || target.Scheme != "https" {
		return nil, nil, &accessError{errors.New("credentials are sent with https only")}
	}
	credentials, err := wish.Access.Read(ctx)
	if err != nil {
		return nil, nil, &accessError{fmt.Errorf("reading the credentials: %w", err)}
	}
	others, _ := s.client.Transport.(discreet)
	own := discreet{sources: others.sources, Transport: others.Clone()}
	if credentials.roots != nil {
		if own.TLSClientConfig == nil {
			own.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		own.TLSClientConfig.RootCAs = credentials.roots
	}
	return &http.Client{
		Transport:     entrusted{RoundTripper: own, others: others, host: target.Host, authorization: credentials.authorization},
		CheckRedirect: checkRedirect,
	}, own.CloseIdleConnections, nil
}

// entrusted is a transport that sends credentials to one server only. Servers that it redirects to get none and need
// certificates that the system trusts.
type entrusted struct {
	http.RoundTripper
	others              http.RoundTripper
	host, authorization string
}

func (t entrusted) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" || !strings.EqualFold(request.URL.Host, t.host) {
		return t.others.RoundTrip(request)
	}
	if t.authorization != "" {
		// http.Client copies the headers of its own request to redirected requests, but it doesn't know this header.
		request = request.Clone(request.Context())
		request.Header.Set("Authorization", t.authorization)
	}
	return t.RoundTripper.RoundTrip(request)
}
