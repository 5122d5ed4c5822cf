package torture

import "errors"

// teardown undoes the steps of a stage, the newest first.
type teardown struct{ steps []func() error }

func (t *teardown) onEnd(do func() error) { t.steps = append(t.steps, do) }

func (t *teardown) end() (err error) {
	for i := len(t.steps) - 1; i >= 0; i-- {
		err = errors.Join(err, t.steps[i]())
	}
	return err
}
