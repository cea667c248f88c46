package program

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// The codes of bundles that cannot be read. The verifier's follow at SPV-1020.
const (
	CodeTooLarge     = "SPV-1000" // bundle or module beyond its limit
	CodeNotBundle    = "SPV-1001" // neither a bundle nor a module
	CodeVersion      = "SPV-1002" // a bundle of another version
	CodeLengths      = "SPV-1003" // the lengths in the header are not the bundle's
	CodeManifestSize = "SPV-1004"
	CodeManifestJSON = "SPV-1005" // not JSON, or a field that manifests do not have
	CodeManifestTwin = "SPV-1006" // a field twice
	CodeManifest     = "SPV-1007" // a value that cannot be
)

const (
	bundleMagic   = "CGPB"
	bundleVersion = 1
	headerBytes   = 16
	spirvMagic    = 0x07230203
	// minModuleBytes is a SPIR-V header.
	minModuleBytes = 20
)

// Bundle is a parsed bundle. The module is not checked yet; of the manifest only
// the ranges of values are.
type Bundle struct {
	SPIRV    []byte    // aliases the bytes parsed
	Manifest *Manifest // never nil; empty where the bundle is a bare module
	Digest   [32]byte  // SHA-256 of the bundle's bytes
}

// Encode makes the canonical bundle of a module and a manifest: the same two give
// the same bytes. With a nil manifest the bundle is the module itself. The error is
// a *Refusal.
func Encode(spirv []byte, m *Manifest) ([]byte, error) {
	if err := checkModule(spirv); err != nil {
		return nil, err
	}

	if m == nil {
		if len(spirv) > MaxBundleBytes {
			return nil, tooLarge(len(spirv))
		}
		return bytes.Clone(spirv), nil
	}

	if err := m.check(); err != nil {
		return nil, err
	}

	text, err := json.Marshal(m)
	if err != nil {
		return nil, Refuse(CodeManifestJSON, "", 0, "%v", err)
	}
	if len(text) > MaxManifestBytes {
		return nil, Refuse(CodeManifestSize, "", 0, "the manifest is %d bytes, more than %d", len(text), MaxManifestBytes)
	}

	size := headerBytes + len(spirv) + len(text)
	if size > MaxBundleBytes {
		return nil, tooLarge(size)
	}

	out := make([]byte, 0, size)
	out = append(out, bundleMagic...)
	out = binary.LittleEndian.AppendUint32(out, bundleVersion)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(spirv)))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(text)))
	out = append(out, spirv...)
	return append(out, text...), nil
}

// Parse parses a bundle:
//
//	"CGPB" │ u32 version = 1 │ u32 module bytes │ u32 manifest bytes │ module │ manifest (JSON)
//
// little-endian, and nothing after. Bytes that begin like a module are a bundle
// without a manifest. The error is a *Refusal with a code of SPV-1000 to 1019;
// its offset counts from the start of the bundle.
func Parse(data []byte) (*Bundle, error) {
	if len(data) > MaxBundleBytes {
		return nil, tooLarge(len(data))
	}

	if len(data) >= 4 && binary.LittleEndian.Uint32(data) == spirvMagic {
		if err := checkModule(data); err != nil {
			return nil, err
		}
		return &Bundle{SPIRV: data, Manifest: &Manifest{}, Digest: sha256.Sum256(data)}, nil
	}

	if len(data) < headerBytes || string(data[:4]) != bundleMagic {
		return nil, Refuse(CodeNotBundle, "", 0, "neither a bundle (%q) nor a little-endian SPIR-V module", bundleMagic)
	}
	if v := binary.LittleEndian.Uint32(data[4:]); v != bundleVersion {
		return nil, Refuse(CodeVersion, "", 4, "bundle version %d; this is version %d", v, bundleVersion)
	}

	moduleBytes := uint64(binary.LittleEndian.Uint32(data[8:]))
	manifestBytes := uint64(binary.LittleEndian.Uint32(data[12:]))
	if headerBytes+moduleBytes+manifestBytes != uint64(len(data)) {
		return nil, Refuse(CodeLengths, "", 8, "the header says %d bytes of module and %d of manifest, the bundle is %d bytes",
			moduleBytes, manifestBytes, len(data))
	}
	if manifestBytes > MaxManifestBytes {
		return nil, Refuse(CodeManifestSize, "", 12, "the manifest is %d bytes, more than %d", manifestBytes, MaxManifestBytes)
	}

	module := data[headerBytes : headerBytes+moduleBytes : headerBytes+moduleBytes]
	if err := checkModule(module); err != nil {
		return nil, err
	}

	m, err := ParseManifest(data[headerBytes+moduleBytes:])
	if err != nil {
		err.Off = uint32(headerBytes + moduleBytes)
		return nil, err
	}

	return &Bundle{SPIRV: module, Manifest: m, Digest: sha256.Sum256(data)}, nil
}

// ParseManifest reads a manifest's JSON. It is strict: one object, no unknown
// field, no duplicate, nothing after it.
func ParseManifest(text []byte) (*Manifest, *Refusal) {
	if len(text) > MaxManifestBytes {
		return nil, Refuse(CodeManifestSize, "", 0, "the manifest is %d bytes, more than %d", len(text), MaxManifestBytes)
	}
	if err := checkTwins(text); err != nil {
		return nil, err
	}

	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	m := &Manifest{}
	if err := d.Decode(m); err != nil {
		return nil, Refuse(CodeManifestJSON, "", 0, "the manifest: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, Refuse(CodeManifestJSON, "", 0, "the manifest: something follows the object")
	}
	if err := m.check(); err != nil {
		return nil, err
	}

	return m, nil
}

func tooLarge(size int) *Refusal {
	return Refuse(CodeTooLarge, "", 0, "the bundle is %d bytes, more than %d", size, MaxBundleBytes)
}

func checkModule(module []byte) error {
	if len(module) > MaxBundleBytes {
		return tooLarge(len(module))
	}
	if len(module) < minModuleBytes || len(module)%4 != 0 {
		return Refuse(CodeNotBundle, "", 0, "a module of %d bytes: it is words of 4, at least %d bytes", len(module), minModuleBytes)
	}
	if binary.LittleEndian.Uint32(module) != spirvMagic {
		return Refuse(CodeNotBundle, "", 0, "the module does not begin with SPIR-V's little-endian magic number")
	}
	return nil
}

// checkTwins refuses input that encoding/json accepts: a field twice in one object,
// also in another spelling (it matches names in any case), and anything but an
// object at the top.
func checkTwins(text []byte) *Refusal {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	type object struct {
		keys map[string]bool // nil: an array
		key  bool            // a key comes next
	}

	var open []object
	for first := true; first || len(open) > 0; first = false {
		token, err := d.Token()
		if err != nil {
			return Refuse(CodeManifestJSON, "", 0, "the manifest: %v", err)
		}
		if first && token != json.Delim('{') {
			return Refuse(CodeManifestJSON, "", 0, "the manifest: not a JSON object")
		}

		if n := len(open); n > 0 && open[n-1].keys != nil {
			top := &open[n-1]
			if key, isKey := token.(string); isKey && top.key {
				// Beyond ASCII the decoder folds more than ToLower: it reads ſ as
				// an s.
				if strings.ContainsFunc(key, func(r rune) bool { return r >= utf8.RuneSelf }) {
					return Refuse(CodeManifestJSON, "", 0, "the manifest: unknown field %.80q", key)
				}
				folded := strings.ToLower(key)
				if top.keys[folded] {
					return Refuse(CodeManifestTwin, "", 0, "the manifest: field %.80q twice", key)
				}
				top.keys[folded] = true
			}
			top.key = !top.key // what opens or closes an object counts as its value
		}

		switch token {
		case json.Delim('{'):
			open = append(open, object{keys: map[string]bool{}, key: true})
		case json.Delim('['):
			open = append(open, object{})
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}

		if len(open) > maxDepth {
			return Refuse(CodeManifestJSON, "", 0, "the manifest: nested deeper than %d", maxDepth)
		}
	}

	return nil
}

// maxDepth is more than a manifest's own nesting of 3.
const maxDepth = 8

// MarshalText is String's word.
func (a Access) MarshalText() ([]byte, error) {
	if a == 0 || a > ReadWrite {
		return nil, fmt.Errorf("no access %d", uint8(a))
	}
	return []byte(a.String()), nil
}

// UnmarshalText reads String's word.
func (a *Access) UnmarshalText(text []byte) error {
	for _, known := range []Access{Read, Write, ReadWrite} {
		if string(text) == known.String() {
			*a = known
			return nil
		}
	}
	return fmt.Errorf("access %.20q is none of read, write, readWrite", text)
}
