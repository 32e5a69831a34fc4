import { describe, expect, it } from 'vitest'
import { fakeProcess } from '../_testing/fake-terminal.ts'
import { openIo } from '../io.ts'
import { LiveView } from './live-view.ts'

const hide = '\u001b[?25l'
const show = '\u001b[?25h'

describe('LiveView', () => {
  it('draws in place: moves up over what it drew and clears it', () => {
    const parts = fakeProcess({ columns: 40 })
    using io = openIo(parts)
    using view = new LiveView(io.stdout, io.events)
    view.draw(['one', 'two', 'three'])
    view.draw(['four'])
    view.draw(['five'])
    expect(parts.stdout.text).toBe(
      `${hide}one\ntwo\nthree\n${hide}\u001b[3A\r\u001b[0Jfour\n${hide}\u001b[1A\r\u001b[0Jfive\n`,
    )
  })

  it('keeps what is printed above its lines', () => {
    const parts = fakeProcess({ columns: 40 })
    using io = openIo(parts)
    using view = new LiveView(io.stdout, io.events)
    view.draw(['one', 'two'])
    view.print('note')
    view.draw(['one', 'two'])
    expect(parts.stdout.text.endsWith(`\u001b[2A\r\u001b[0Jnote\n${hide}one\ntwo\n`)).toBe(true)
  })

  it('never draws more than the terminal holds', () => {
    const parts = fakeProcess({ columns: 10 })
    using io = openIo(parts)
    using view = new LiveView(io.stdout, io.events)
    view.draw(Array<string>(100).fill('x'.repeat(30)))
    expect(parts.stdout.lines).toHaveLength(39)
    expect(new Set(parts.stdout.lines.map((line) => line.length))).toEqual(new Set([9]))
  })

  it('gives the cursor back when it is closed, and leaves no listener', () => {
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

  it('gives the cursor back when the process exits under it', () => {
    const parts = fakeProcess({ columns: 40 })
    using io = openIo(parts)
    using view = new LiveView(io.stdout, io.events)
    view.draw(['one'])
    parts.events.emit('exit', 1)
    expect(parts.stdout.text.endsWith(show)).toBe(true)
  })

  it('touches nothing if it never drew', () => {
    const parts = fakeProcess({ columns: 40 })
    using io = openIo(parts)
    new LiveView(io.stdout, io.events)[Symbol.dispose]()
    expect(parts.stdout.text).toBe('')
  })
})
