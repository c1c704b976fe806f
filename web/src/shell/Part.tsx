/** A page that is loaded on first use and whose errors do not affect the rest of the console. */
import { useSignal } from "@preact/signals";
import { Component, type ComponentChildren, type ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { ask } from "../api/client";
import { Failed } from "../components/Empty";
import { Loading } from "../components/Spinner";

interface Props {
    id: string;
}

/** Wraps a lazily loaded component. */
export function later(load: () => Promise<{ default: ComponentType<Props> }>): ComponentType<Props> {
    let loaded: ComponentType<Props> | null = null;
    return function Part(props: Props) {
        const error = useSignal<unknown>(null);
        const isThere = useSignal(loaded !== null);
        useEffect(() => {
            if (loaded !== null) return;
            load().then(
                (module) => {
                    loaded = module.default;
                    isThere.value = true;
                },
                async (fault: unknown) => (error.value = (await unreachable()) ?? fault),
            );
        }, []);
        // A part that could not be loaded cannot be loaded again without the page, which needs the server.
        const retry = async (): Promise<void> => {
            const problem = await unreachable();
            if (problem === null) location.reload();
            else error.value = problem;
        };
        if (error.value !== null) return <Failed error={error.value} onRetry={() => void retry()} />;
        if (!isThere.value || loaded === null) return <Loading />;
        const Loaded = loaded;
        return (
            <Boundary>
                <Loaded {...props} />
            </Boundary>
        );
    };
}

/** Why the server does not answer; null if it does. */
const unreachable = (): Promise<unknown> =>
    ask("GET", "/healthz").then(
        () => null,
        (error: unknown) => error,
    );

class Boundary extends Component<{ children: ComponentChildren }, { error: unknown }> {
    override state = { error: null };

    static override getDerivedStateFromError(error: unknown): { error: unknown } {
        return { error };
    }

    override render() {
        if (this.state.error === null) return this.props.children;
        return <Failed error={this.state.error} onRetry={() => this.setState({ error: null })} />;
    }
}
