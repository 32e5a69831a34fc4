import { mkdtempDisposable, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { expect, test } from 'vitest'
import { programName } from './io.ts'

test('the program is shown by its name if that is on the PATH, otherwise with npx', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-program-'))
  const PATH = ['', join(folder.path, 'none'), folder.path].join(delimiter)
  expect(programName({})).toBe('npx millrace')
  expect(programName({ PATH })).toBe('npx millrace')
  await writeFile(join(folder.path, 'millrace'), '')
  expect(programName({ PATH })).toBe('millrace')
  // npx and npm run put the folder there themselves.
  expect(programName({ PATH, npm_command: 'exec' })).toBe('npx millrace')
  expect(programName({ PATH, npm_config_user_agent: 'pnpm/10.0.0 npm/? node/v24.0.0' })).toBe('npx millrace')
})
