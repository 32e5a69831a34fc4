import { describe, expect, it } from 'vitest'
import { fakeProcess } from '../../../../test/support/cli/fake-terminal.ts'
import { openIo } from '../../terminal/io.ts'
import { LiveView } from './live-output.ts'

const hide = '\u001b[?25l'
const show = '\u001b[?25h'
const clear = '\u001b[K'

describe('LiveView', () => {
  it('overwrites its own lines, and clears only the rest below', () => {
    const parts = fakeProcess({ columns: 40 })
    using io = openIo(parts)
    using view = new LiveView(io.stdout, io.events)
    view.draw(['one', 'two', 'three'])
    view.draw(['four'])
    view.draw(['five'])
    expect(parts.stdout.text).toBe(
      `${hide}one${clear}\ntwo${clear}\nthree${clear}\n` +
        `${hide}\u001b[3A\rfour${clear}\n\u001b[J${hide}\u001b[1A\rfive${clear}\n`,
    )
  })

  it('keeps output that is printed above its lines', () => {
    const parts = fakeProcess({ columns: 40 })
    using io = openIo(parts)
    using view = new LiveView(io.stdout, io.events)
    view.draw(['one', 'two'])
    view.print('note')
    view.draw(['one', 'two'])
    expect(parts.stdout.text.endsWith(`\u001b[2A\rnote${clear}\n\u001b[J${hide}one${clear}\ntwo${clear}\n`)).toBe(true)
  })

  it('does not change output printed after it was closed', () => {
    const parts = fakeProcess({ columns: 40 })
    using io = openIo(parts)
    const view = new LiveView(io.stdout, io.events)
    view.draw(['one', 'two'])
    view[Symbol.dispose]()
    void io.stdout.write('the results\n')
    view.print('note')
    expect(parts.stdout.text.endsWith('the results\nnote\n')).toBe(true)
  })

  it('finds its first line again after the terminal became narrower', () => {
    const parts = fakeProcess({ columns: 40 })
    using io = openIo(parts)
    using view = new LiveView(io.stdout, io.events)
    view.draw(['x'.repeat(30), 'y'])
    parts.stdout.columns = 20
    view.draw(['z'])
    expect(parts.stdout.text.endsWith(`${hide}\u001b[3A\rz${clear}\n\u001b[J`)).toBe(true)
  })

  it('never draws more lines than the terminal has', () => {
    const parts = fakeProcess({ columns: 10 })
    using io = openIo(parts)
    using view = new LiveView(io.stdout, io.events)
    view.draw(Array<string>(100).fill('x'.repeat(30)))
    expect(parts.stdout.lines).toHaveLength(39)
    expect(new Set(parts.stdout.lines.map((line) => line.length))).toEqual(new Set([9]))
  })

  it('restores the cursor when it is closed, and leaves no listener', () => {
    const parts = fakeProcess({ columns: 40 })
    using io = openIo(parts)
    const view = new LiveView(io.stdout, io.events)
    view.draw(['one'])
    expect(parts.events.listenerCount('exit')).toBe(1)
    view[Symbol.dispose]()
    view[Symbol.dispose]()
    view.draw(['late'])
    expect(parts.stdout.text.endsWith(show)).toBe(true)
    expect(parts.events.listenerCount('exit')).toBe(0)
  })

  it('restores the cursor when the process exits', () => {
    const parts = fakeProcess({ columns: 40 })
    using io = openIo(parts)
    using view = new LiveView(io.stdout, io.events)
    view.draw(['one'])
    parts.events.emit('exit', 1)
    expect(parts.stdout.text.endsWith(show)).toBe(true)
  })

  it('writes nothing if it never drew', () => {
    const parts = fakeProcess({ columns: 40 })
    using io = openIo(parts)
    new LiveView(io.stdout, io.events)[Symbol.dispose]()
    expect(parts.stdout.text).toBe('')
  })
})
