import { join } from 'node:path'
import { markedBlocks, page } from '../../../test/support/pages.ts'

const root = join(import.meta.dirname, '..', '..', '..')
const steps = join(import.meta.dirname, 'steps-environment.ts')

export interface ExternalAgent {
  readonly name: string
  /** A line for the shell that begins with `millrace eval`. */
  readonly line: string
  /** The most calls that one reply has. */
  readonly callsAtOnce: number
  /** A task that takes long, and what then runs: so many processes with these words in their command. */
  readonly endless: {
    readonly task: Readonly<Record<string, unknown>>
    readonly processes: number
    readonly words: string
    /** It is the model that takes long. */
    readonly isModel?: boolean
  }
}

/** Three processes below a shell, one of them in a session of its own. All but the shell are deaf to SIGTERM. */
const crowd = 'trap "" TERM; setsid sleep 6043 & sleep 6043 & sleep 6043'
const crowdTask = { steps: `Run \`${crowd}\``, says: '' }
const sum = { expression: '6 * 7', answer: 42 }

/** The lines of docs/agents.md for Claude Code and Codex, and the agents of examples/external. */
export async function externalAgents(): Promise<readonly ExternalAgent[]> {
  const { text } = await page('docs/agents.md')
  const ofPage = markedBlocks(text, 'external').map(({ argument: name, code }) => ({
    name,
    line: code.trim().replace('./environment.ts', steps),
    callsAtOnce: 2,
    endless: { task: crowdTask, processes: 3, words: 'sleep 6043' },
  }))
  const bash = join(root, 'examples', 'external', 'agent.sh')
  return [
    ...ofPage,
    {
      name: 'Python',
      line: 'millrace eval external -m policy --tokens --limit 8',
      callsAtOnce: 1,
      endless: { task: sum, processes: 1, words: 'agent.py', isModel: true },
    },
    {
      name: 'bash and curl',
      line: `millrace eval arithmetic -m policy --tokens --limit 8 --agent external --agent.command='bash ${bash}'`,
      callsAtOnce: 0,
      endless: { task: sum, processes: 1, words: 'curl ', isModel: true },
    },
  ]
}
