import { expect, test } from 'vitest'
import type { JsonObject } from '../schema/index.ts'
import { changedInput, changesOf } from './claude-code-calls.ts'

const called = (name: string, input: JsonObject) => ({ name, arguments: JSON.stringify(input) })

/** All that may become of a single call. */
function becoming(name: string, input: JsonObject): JsonObject[] {
  return changesOf([called(name, input)]).map((change) => changedInput(name, input, change))
}

const edit = { file_path: 'a.ts', old_string: 'x \n', new_string: 'y' }

test.for<[string, string, JsonObject, JsonObject]>([
  ['a default that is filled in', 'Edit', edit, { ...edit, replace_all: false }],
  ['a default that was said', 'Edit', { ...edit, replace_all: true }, { ...edit, replace_all: true }],
  [
    'spaces at the ends of lines that replace others',
    'Edit',
    { ...edit, new_string: 'y  \r\n\tz\t\n ' },
    { ...edit, new_string: 'y\r\n\tz\n', replace_all: false },
  ],
  [
    'spaces that stay, because there is no such file',
    'Edit',
    { ...edit, new_string: 'y ' },
    { ...edit, new_string: 'y ', replace_all: false },
  ],
  [
    'spaces at the ends of lines of a file',
    'Write',
    { file_path: 'a.ts', content: 'a  \n  b ' },
    { file_path: 'a.ts', content: 'a\n  b' },
  ],
  ['the folder that the agent is in', 'Bash', { command: 'cd /work && make' }, { command: 'make' }],
  ['another folder', 'Bash', { command: 'cd /work && make' }, { command: 'cd /work && make' }],
  ['a doubled backslash', 'Bash', { command: 'ls {} \\\\; -a' }, { command: 'ls {} \\; -a' }],
])('Claude Code sends back: %s', ([, name, input, expected]) => {
  expect(becoming(name, input)).toContainEqual(expected)
})

test.for<[string, string, JsonObject]>([
  ['spaces at the ends of lines in Markdown', 'Write', { file_path: 'a.MD', content: 'a  \n' }],
  ['spaces elsewhere', 'Bash', { command: 'make  \n', description: 'a ' }],
  ['a folder behind another command', 'Bash', { command: 'ls; cd /work && make' }],
  ['a field that is false or null', 'Bash', { command: 'make', run_in_background: false, timeout: null }],
])('Claude Code keeps: %s', ([, name, input]) => {
  for (const changed of becoming(name, input)) expect(changed).toEqual(input)
})

test('calls of other tools are not changed', () => {
  const input = { command: 'cd /work && make', content: 'a ', file_path: 'a.ts', new_string: 'b ' }
  expect(becoming('bash', input)).toEqual([])
  const [change] = changesOf([called('Bash', input)])
  expect(change && changedInput('bash', input, change)).toEqual(input)
})

test('only one folder is taken off the commands of a reply, and only four are looked at', () => {
  const calls = ['/a', '/b', '/a'].map((folder) => called('Bash', { command: `cd ${folder} && make` }))
  const folders = (of: typeof calls) => new Set(changesOf(of).map(({ folder }) => folder))
  expect(folders(calls)).toEqual(new Set([undefined, '/a', '/b']))
  const many = Array.from({ length: 20 }, (_, index) => called('Bash', { command: `cd /${index} && make` }))
  expect(folders(many).size).toBe(5)
})

test('a long run of spaces is looked at once', () => {
  const content = `${' '.repeat(1_000_000)}x`
  expect(becoming('Write', { file_path: 'a', content })).toContainEqual({ file_path: 'a', content })
})
