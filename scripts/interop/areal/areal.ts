import assert from 'node:assert/strict'
import { join } from 'node:path'
import { findPython } from '../find-python.ts'
import { check, type Counts, installMs, installPython, runCase, say, sumOf } from '../part.ts'
import { runProgram } from '../run-program.ts'
import { adminKey, ArealServers, type Target } from './areal-servers.ts'
import { compareCosts } from './costs.ts'

const compareMs = 3 * 60_000
const delayMs = 20

interface Compared {
  readonly tensors: Readonly<Record<string, { readonly dtype: string; readonly rows: unknown }>>
  readonly references: number
  readonly stream: string
}

/**
 * AReaL 1.0.4 from PyPI together with Millrace: its workflow client against its own servers and against ours. It needs Linux and
 * Python 3.11 or 3.12. With all that it imports it has 7.7 GB, and is kept in the folder that MILLRACE_INTEROP_CACHE names.
 */
export async function areal(folder: string): Promise<Counts> {
  const base = await findPython({ package: 'AReaL 1.0.4', oldest: 11, newest: 12 })
  say('installing AReaL 1.0.4')
  const parent = process.env['MILLRACE_INTEROP_CACHE'] ?? folder
  const python = await installPython(join(parent, 'areal-1.0.4'), join(import.meta.dirname, 'requirements.txt'), base)
  const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-deps', 'areal==1.0.4']
  check(await runProgram(python, pip, { timeoutMs: installMs }), 'pip could not install areal')
  const tokenizer = join(folder, 'tokenizer')
  const script = join(import.meta.dirname, 'write_tokenizer.py')
  check(await runProgram(python, [script, tokenizer], { timeoutMs: compareMs }), 'the tokenizer could not be made')
  await using servers = await ArealServers.open({ python, tokenizer, folder }, delayMs)
  const [theirs, ours, byReference] = await Promise.all([
    servers.startAreal(),
    servers.startMillrace(),
    servers.startMillrace('--areal-tensors', 'reference'),
  ])
  const counts = [
    await runCase('trajectories of the workflow client', () => trajectories(servers, theirs, ours)),
    await runCase('tensors by reference', () => references(servers, theirs, byReference)),
    await compareCosts(servers, theirs, ours),
  ]
  return sumOf(counts)
}

async function compared(servers: ArealServers, { url }: Target): Promise<Compared> {
  const asked = { what: 'compare', gateway: url, key: adminKey, group: 2, discount: 0.9 }
  return await servers.ask<Compared>(asked, compareMs)
}

async function trajectories(servers: ArealServers, theirs: Target, ours: Target): Promise<string> {
  const expected = await compared(servers, theirs)
  const found = await compared(servers, ours)
  assert.deepEqual(found.tensors, expected.tensors)
  assert.equal(found.stream, expected.stream)
  assert.equal(found.references, 0)
  return `${Object.keys(found.tensors).length} equal tensors of two sessions, and an equal stream`
}

async function references(servers: ArealServers, theirs: Target, ours: Target): Promise<string> {
  const expected = await compared(servers, theirs)
  const found = await compared(servers, ours)
  assert.deepEqual(found.tensors, expected.tensors)
  assert.equal(found.references, expected.references)
  return `${found.references} tensors fetched and cleared`
}
