// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestErrorIsItsStatusAndItsBand(t *testing.T) {
	err := error(&Error{Op: "Op", Status: StatusNoRoom, Message: "why"})
	for _, target := range []error{ErrNoRoom, ErrRoom} {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %v", err, target)
		}
	}
	for _, target := range []error{ErrQuota, ErrCaller, ErrPeer, ErrMiss, context.Canceled} {
		if errors.Is(err, target) {
			t.Errorf("%v is %v", err, target)
		}
	}
	if text := err.Error(); !strings.Contains(text, "KVBM_ERR_NO_ROOM") || !strings.Contains(text, "why") {
		t.Errorf("the text is %q", text)
	}
	var e *Error
	if !errors.As(err, &e) || e.Band() != BandRoom {
		t.Errorf("the band is %d", e.Band())
	}
}

func TestErrorOfTimeIsThatOfPackageContext(t *testing.T) {
	if err := (&Error{Status: StatusDeadline}); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrPeer) {
		t.Error("a deadline is not context.DeadlineExceeded")
	}
	if err := (&Error{Status: StatusCancelled}); !errors.Is(err, context.Canceled) {
		t.Error("a cancellation is not context.Canceled")
	}
}

func TestPartialErrorIsWhatFailedInIt(t *testing.T) {
	err := error(&PartialError{Op: "Op", Items: []Status{StatusOK, StatusQuota, StatusMiss}})
	for _, target := range []error{ErrQuota, ErrRoom, ErrMiss, ErrMissStatus} {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %v", err, target)
		}
	}
	if errors.Is(err, ErrCaller) || errors.Is(err, ErrDamaged) {
		t.Errorf("%v is what did not happen", err)
	}
	if !strings.Contains(err.Error(), "2 of 3") {
		t.Errorf("the text is %q", err)
	}
}

func TestEveryStatusHasABandAndAName(t *testing.T) {
	for name, value := range goConstants {
		if !strings.HasPrefix(name, "KVBM_ERR_") {
			continue
		}
		s := Status(value)
		if s.String() != name || s.Text() == "" || s.Band() != Band(value/100) {
			t.Errorf("%s: %q, %q, band %d", name, s, s.Text(), s.Band())
		}
	}
	if StatusOK.Band() != 0 || StatusPartial.Band() != 0 || Status(-7).Band() != 0 || Status(-700).Band() != 0 {
		t.Error("what is no failure has a band")
	}
}

func TestVersionThatDoesNotFitIsRefusedWithAClearMessage(t *testing.T) {
	for _, c := range []struct {
		header, library uint32
		fits            bool
	}{
		{1000, 1000, true}, {1000, 1002, true}, {1002, 1000, false}, {1000, 2000, false}, {2000, 1000, false},
		{1000, 1000000, false}, {1000000, 1002000, true}, {1002000, 1000000, false}, {1000000, 2000000, false},
	} {
		err := checkVersion("op", c.header, c.library)
		if (err == nil) != c.fits {
			t.Errorf("header %d, library %d: %v", c.header, c.library, err)
		}
		if err != nil {
			wantStatus(t, err, StatusVersion)
		}
	}
	err := checkVersion("op", 1000, 2003)
	if err == nil || !strings.Contains(err.Error(), "0.1.0") || !strings.Contains(err.Error(), "0.2.3") {
		t.Errorf("the message does not name both versions: %v", err)
	}
}

func TestMessagesOfTheLibraryReachTheError(t *testing.T) {
	_, err := NewContext(&ContextOptions{Settings: map[string]string{"no.such.setting": "1"}})
	wantStatus(t, err, StatusConfig)
	if !strings.Contains(err.Error(), "no.such.setting") {
		t.Errorf("the message does not name the setting: %v", err)
	}
	_, err = NewGeometry(16, 1, []Component{{Kind: ComponentAttention, Element: ElementBF16}})
	wantStatus(t, err, StatusInvalid)
}
