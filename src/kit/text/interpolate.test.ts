import { expect, test } from 'vitest'
import { interpolate } from './interpolate.ts'

const env = { HOST: 'gpu-1', PORT: '8000', EMPTY: '' }

test('variables are filled in within strings, and nowhere else', () => {
  const config = { url: 'http://${HOST}:${PORT}/v1', list: ['${HOST}', 3, null, true], '${HOST}': { deep: '${PORT}' } }
  expect(interpolate(config, env, 'f')).toEqual({
    value: { url: 'http://gpu-1:8000/v1', list: ['gpu-1', 3, null, true], '${HOST}': { deep: '8000' } },
    filledIn: ['gpu-1', '8000'],
  })
})

test('the value of a variable is not interpolated again, and $$ is an escaped dollar', () => {
  const { value, filledIn } = interpolate(['${A}', '$${A}', '$A', '$5'], { A: '${B}' }, 'f')
  expect(value).toEqual(['${B}', '${A}', '$A', '$5'])
  expect(filledIn).toEqual(['${B}'])
})

test.each(['MISSING', 'EMPTY'])('an error names the missing variable %s and its place', (name) => {
  expect(() => interpolate({ keys: [{ key: `x\${${name}}` }] }, env, 'gateway.yaml')).toThrow(
    `gateway.yaml: keys[0].key needs the variable ${name}, which is not set`,
  )
})

test.each([
  ['${MISSING:-here}', 'here'],
  ['${EMPTY:-here}', 'here'],
  ['${HOST:-here}', 'gpu-1'],
  ['${MISSING:-}', ''],
  ['http://${MISSING:-a:-b}/', 'http://a:-b/'],
])('%s becomes %s: a default replaces an unset variable and is not secret', (text, filled) => {
  const { value, filledIn } = interpolate(text, env, 'f')
  expect(value).toBe(filled)
  expect(filledIn).toEqual(filled === 'gpu-1' ? ['gpu-1'] : [])
})
