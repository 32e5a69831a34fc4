import { expect, test } from 'vitest'
import type { TaskRow, TaskSource } from '../env/index.ts'
import type { JsonObject } from '../schema/index.ts'
import { promptTemplate, withPrompts } from './prompt-template.ts'

/** The rows that these become with a template. */
async function rowsWith(template: JsonObject, values: readonly unknown[], isOfAll = false): Promise<TaskRow[]> {
  const source: TaskSource = {
    label: 'data.jsonl',
    async *rows() {
      for (const [index, value] of values.entries()) yield { at: `line ${index + 1}`, value }
    },
  }
  const read = promptTemplate(template, 'math.yaml')
  return await Array.fromAsync(withPrompts(source, { ofAll: isOfAll ? read : undefined, of: () => read }).rows())
}

const user = 'Put the answer inside \\boxed{{}}.\n\n{question}{{{n}}}'

test('a row without messages gets those of the template, and keeps its other parameters', async () => {
  const bare = { question: 'What is {x}?', n: 1, b: true, z: null }
  const [first, second] = await rowsWith({ system: '{b} {z} {{', user }, [
    bare,
    { ...bare, responses_create_params: { input: [], temperature: 0.5 } },
  ])
  const input = [
    { role: 'system', content: 'True None {' },
    { role: 'user', content: 'Put the answer inside \\boxed{}.\n\nWhat is {x}?{1}' },
  ]
  expect(first).toEqual({ at: 'line 1', value: { ...bare, responses_create_params: { input } } })
  expect(second).toMatchObject({ value: { responses_create_params: { input, temperature: 0.5 } } })
})

test('numbers of a row that is text stay as they are written, in the prompt too', async () => {
  const [row] = await rowsWith({ user: '{n} {w}' }, ['{"n":9007199254740993,"w":1.0}'])
  const params = '{"input":[{"role":"user","content":"9007199254740993 1.0"}]}'
  expect(row).toMatchObject({ value: `{"n":9007199254740993,"w":1.0,"responses_create_params":${params}}` })
})

test('a row that has messages keeps them, except if the template is for all rows', async () => {
  const row = { question: 'x', n: 1, responses_create_params: { input: 'y' } }
  expect(await rowsWith({ user }, [row])).toEqual([{ at: 'line 1', value: row }])
  const problem = expect.stringContaining('the row has an `input`, and there is a prompt_config')
  expect(await rowsWith({ user }, [row], true)).toEqual([{ at: 'line 1', problem }])
})

test('a row that lacks a field fails by itself', async () => {
  const rows = await rowsWith({ user }, [
    { problem: 'x', n: 1 },
    { question: ['x'], n: 1 },
    { question: 'x', n: 1 },
  ])
  expect(rows.map((row) => ('problem' in row ? row.problem : ''))).toEqual([
    'the prompt has the field {question}, and the row only: problem, n',
    'the prompt has the field {question}, which is a list or an object in the row',
    '',
  ])
})

test.each([
  [{ system: 'x' }, 'the prompt math.yaml has no text `user`'],
  [{ user: '{a' }, 'has a { alone: double it'],
  [{ user: '{a}}' }, 'has a } alone: double it'],
  [{ user: '{a[0]}' }, 'has {a[0]}: write a field as {name}'],
  [{ user: '{}' }, 'has {}: write a field as {name}'],
])('what is no template is told: %j', (template, problem) => {
  expect(() => promptTemplate(template, 'math.yaml')).toThrow(problem)
})
