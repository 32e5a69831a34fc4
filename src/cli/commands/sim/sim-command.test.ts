import { describe, expect, it } from 'vitest'
import { imitationNames } from '../../../simulator/engine/options.ts'
import { fakeProcess } from '../../../../test/support/cli/fake-terminal.ts'
import { main } from '../../main.ts'
import { command as simCommand } from './sim-command.ts'

describe('millrace sim', () => {
  it('imitates every server that the simulator supports', () => {
    expect(simCommand.flags.imitate.choices).toEqual(imitationNames)
  })

  it('serves with the given options until it is interrupted', async () => {
    const parts = fakeProcess()
    const ended = main(['sim', '--port', '0', '--skill=0.5', '--faults.cut=0.1', '--reasoning'], parts)
    while (!parts.stdout.text.includes('Ctrl-C')) await new Promise((resolve) => setImmediate(resolve))
    const url = /http:\/\/127\.0\.0\.1:\d+\/v1/.exec(parts.stdout.text)?.[0] ?? ''
    expect(parts.stdout.text).toContain(`--base-url ${url}`)
    const settings: unknown = await (await fetch(url.replace('/v1', '/sim/settings'))).json()
    expect(settings).toMatchObject({ skill: 0.5, faults: { cut: 0.1 }, reasoning: true })
    parts.events.emit('SIGINT')
    expect(await ended).toBe(0)
    expect(parts.events.listenerCount('SIGINT') + parts.events.listenerCount('SIGTERM')).toBe(0)
    await expect(fetch(url)).rejects.toThrow()
  })

  it.each([
    [[], 'random'],
    [['--seed=5'], 5],
  ])('with %j uses the seed %j, so that attempts vary unless a seed is given', async (args, seed) => {
    const parts = fakeProcess()
    const ended = main(['sim', '--port', '0', ...args], parts)
    while (!parts.stdout.text.includes('Ctrl-C')) await new Promise((resolve) => setImmediate(resolve))
    const url = /http:\/\/127\.0\.0\.1:\d+/.exec(parts.stdout.text)?.[0] ?? ''
    expect(await (await fetch(`${url}/sim/settings`)).json()).toMatchObject({ seed })
    parts.events.emit('SIGINT')
    expect(await ended).toBe(0)
  })

  it.each([
    [['--skil=0.5'], 'unknown flag --skil; did you mean --skill?'],
    [['--skill=2', '--port=0'], 'skill'],
  ])('refuses %j', async (args, message) => {
    const parts = fakeProcess()
    expect(await main(['sim', ...args], parts)).toBe(2)
    expect(parts.stderr.text).toContain(message)
  })
})
