// Works in the folder of the rollout, which is empty, and prints a patch. It asks the model for the number alone.
import { execFileSync } from 'node:child_process'
import { cpSync, readFileSync, writeFileSync } from 'node:fs'

const { REPOSITORY, OPENAI_BASE_URL, OPENAI_API_KEY, MILLRACE_MODEL } = process.env
const git = (...words) => execFileSync('git', words, { encoding: 'utf8' })

cpSync(REPOSITORY, '.', { recursive: true })
git('init', '--quiet')
git('add', '.')

const issue = readFileSync(0, 'utf8')
const reply = await fetch(`${OPENAI_BASE_URL}/chat/completions`, {
  method: 'POST',
  headers: { 'content-type': 'application/json', authorization: `Bearer ${OPENAI_API_KEY}` },
  body: JSON.stringify({ model: MILLRACE_MODEL, messages: [{ role: 'user', content: issue }] }),
})
if (!reply.ok) throw new Error(`the model replied with status ${reply.status}: ${await reply.text()}`)
const { choices } = await reply.json()
const number = /Answer: (\d+)/.exec(choices[0].message.content)?.[1] ?? '0'

const file = readFileSync('hall.mjs', 'utf8')
writeFileSync('hall.mjs', file.replace('seats = 0', `seats = ${number}`))
console.log(git('diff'))
